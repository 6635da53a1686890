"""Sessions over file://: calls to the engine in `penstock.client.engine`, and waiting for it."""
