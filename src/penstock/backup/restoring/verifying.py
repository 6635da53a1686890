"""Compares every byte of a backup, and of those that it adds to, with the checksums in the manifests."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

from penstock.backup.archive.archive import Archive
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import StoredFile
from penstock.backup.progress import Progress
from penstock.backup.restoring.chain import Chain


def checked_chunks(archive: Archive, file: StoredFile) -> Iterator[bytes]:
    """Give the bytes of a file; raises BackupError, at the latest behind the last chunk, when they are not right.

    More bytes than the manifest says are never given.
    """
    digest = sha256()
    size = 0
    for chunk in archive.read(file.path):
        size += len(chunk)
        if size > file.size:
            break
        digest.update(chunk)
        yield chunk
    if size != file.size or digest.hexdigest() != file.sha256:
        raise BackupError(f"{file.path} in {archive.where} is damaged: it is not what the manifest says")


def verify(chain: Chain, progress: Progress) -> list[str]:
    """Return what is damaged or missing, a line each; empty when all is well."""
    bad: list[str] = []
    progress.begin("verifying")
    for link in chain.links:
        for file in link.manifest.files:
            if file.backup_id == link.manifest.id:
                progress.expect(file.size)
    for link in chain.links:
        own = link.manifest.id
        for file in link.manifest.files:
            try:
                if file.backup_id != own:
                    _check_reference(chain, file)
                    continue
                for chunk in checked_chunks(link.archive, file):
                    progress.advance(len(chunk))
            except BackupError as error:
                bad.append(str(error))
        named = {file.path for file in link.manifest.files if file.backup_id == own}
        bad.extend(
            f"{path!a} in {link.archive.where} is not in the manifest"
            for path in link.archive.paths()
            if path not in named
        )
    return bad


def _check_reference(chain: Chain, file: StoredFile) -> None:
    """A file of an older backup: that one's manifest has it with the same checksum, and it is checked there."""
    for link in chain.links:
        if link.manifest.id == file.backup_id and file in link.manifest.files:
            return
    raise BackupError(f"{file.path} should be in backup {file.backup_id}, which does not have it so")
