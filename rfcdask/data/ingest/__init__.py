"""Ingest: from a source of rows to a store, block by block, resumable, in bounded memory."""

from rfcdask.data.ingest.ingest import ingest

__all__ = ["ingest"]
