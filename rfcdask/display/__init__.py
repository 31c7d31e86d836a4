"""Charts (matplotlib) and HTML (jinja2) from plain numbers; either is imported when first used."""
