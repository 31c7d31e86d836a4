"""Tables as people have them: columns of all kinds, learned in one pass and encoded as numbers.

`spec` says what is known of a column, `summary` learns it from blocks in any order, `encode` makes
numbers of a block, `frames` knows pandas, polars, pyarrow and Dask, `encoder` is the scikit-learn
transformer and `source` the way into a store. The common form of a block is an Arrow table.
"""
