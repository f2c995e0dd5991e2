"""One engine a file, behind the Protocols in peer.engines.base."""
