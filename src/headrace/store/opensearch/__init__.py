"""Views in OpenSearch: an index per version, behind an alias. It needs the extra `opensearch`.

OpenSearch has no transactions. Each document has the version of its row's last change, so an older
change that arrives late is refused. A deleted row stays as a hidden document for a while, since
OpenSearch forgets the version of a deleted document after a minute, and an older change would bring
it back. The position is a document of its own, written when all changes up to it are there.
"""

from headrace.store.opensearch.declare import OpenSearch

__all__ = ["OpenSearch"]
