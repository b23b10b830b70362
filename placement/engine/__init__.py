"""The pure engine: provider trees as columns, the search over them, scores and NUMA."""
