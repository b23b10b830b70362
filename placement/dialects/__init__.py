"""Other people's languages to ours and back: Koordinator manifests and nova flavors.

Pure: manifests in, provider trees and request groups out. Promises tested in tests/unit/dialects.
"""
