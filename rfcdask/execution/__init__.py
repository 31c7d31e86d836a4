"""Where work runs: threads or a cluster, how it is sent and waited for, and progress."""
