"""Stores on S3: the real protocol, spoken to a server on loopback by a process of its own."""

from __future__ import annotations

import subprocess
import sys

# In its own process: botocore and aiohttp set up loops, sessions and environment for good.
SCRIPT = """
import os
os.environ.update(
    AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_DEFAULT_REGION="us-east-1"
)
import logging
import numpy as np
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").disabled = True
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
os.environ["AWS_ENDPOINT_URL"] = f"http://{host}:{port}"
import s3fs
s3fs.S3FileSystem().mkdir("bucket")
import rfcdask as rf
X = np.random.default_rng(0).normal(size=(5000, 6)).astype("f4")
y = np.arange(5000) % 3
rf.ingest((X, y), "s3://bucket/data.zarr", block_size=40_000)
data = rf.open_dataset("s3://bucket/data.zarr")
assert data.X.npartitions > 1, data.X
np.testing.assert_array_equal(data.X.compute(), X)
np.testing.assert_array_equal(data.y.compute(), y)
np.testing.assert_array_equal(data.rows([4999, 3, 3]).X, X[[4999, 3, 3]])
features = rf.CompressedFeatures(8, n_candidates=100, refine=5, random_state=0).fit(data.X)
local = rf.CompressedFeatures(8, n_candidates=100, refine=5, random_state=0).fit(X)
np.testing.assert_array_equal(features.selected_, local.selected_)
print("all good", flush=True)
os._exit(0)
"""


def test_a_store_on_s3_is_written_read_and_sampled() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.strip().endswith("all good"), done.stderr[-3000:]
