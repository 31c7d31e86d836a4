"""Where rows come from: one file per kind of source, and how a kind is recognised."""
