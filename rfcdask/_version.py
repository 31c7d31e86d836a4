"""The version, apart, so that build tools read it without importing the package."""

__version__ = "0.1.0.dev0"
