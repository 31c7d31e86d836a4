"""Small drawings as inline SVG, for notebooks and the report; knows nothing of the rest."""
