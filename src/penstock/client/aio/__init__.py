"""The asyncio face, from which the synchronous one is written."""
