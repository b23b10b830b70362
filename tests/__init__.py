"""Everything that keeps the promises; a test file is named after the promise it checks."""
