"""Kernel machines whose features and linear head are trained together, mini-batch by mini-batch."""
