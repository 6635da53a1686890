"""A backup in one tar file. Nothing is extracted by name: members are looked up and read."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from penstock.backup.archive.archive import CHUNK_BYTES, FILES_FOLDER, Archive, no_manifest
from penstock.backup.backup_error import BackupError
from penstock.backup.manifest import MANIFEST_BYTES_MAX, MANIFEST_NAME


class TarArchive(Archive):
    def __init__(self, path: str) -> None:
        """Open a tar file; raises BackupError."""
        self.where = path
        self._members: dict[str, tarfile.TarInfo] = {}
        try:
            # "r:" is tar as it is: a compressed one is refused before it fills the memory.
            self._tar = tarfile.open(path, "r:")  # noqa: SIM115
        except (OSError, tarfile.TarError) as error:
            raise BackupError(f"{path} is not a backup, neither a folder nor a tar file: {error}") from error
        try:
            for member in self._tar:
                if not member.isreg() or member.name in self._members:
                    raise BackupError(f"{path} has {member.name[:100]!a} twice, or as a link: do not use it")
                self._members[member.name] = member
        except (OSError, tarfile.TarError) as error:
            self._tar.close()
            raise BackupError(f"{path} is damaged: {error}. Use another copy") from error
        except BackupError:
            self._tar.close()
            raise

    def manifest_bytes(self) -> bytes:
        member = self._members.get(MANIFEST_NAME)
        if member is None or member.size > MANIFEST_BYTES_MAX:
            raise BackupError(no_manifest(self.where))
        return b"".join(self._read(member))

    def size(self, path: str) -> int:
        member = self._members.get(f"{FILES_FOLDER}/{path}")
        return -1 if member is None else member.size

    def read(self, path: str) -> Iterator[bytes]:
        member = self._members.get(f"{FILES_FOLDER}/{path}")
        if member is None:
            raise BackupError(f"{path} is missing in {self.where}")
        yield from self._read(member)

    def _read(self, member: tarfile.TarInfo) -> Iterator[bytes]:
        try:
            file = self._tar.extractfile(member)
            assert file is not None, "only regular files are members"
            while chunk := file.read(CHUNK_BYTES):
                yield chunk
        except (OSError, tarfile.TarError) as error:
            raise BackupError(f"{member.name} in {self.where} cannot be read: {error}") from error

    def paths(self) -> list[str]:
        front = FILES_FOLDER + "/"
        return sorted(name.removeprefix(front) for name in self._members if name.startswith(front))

    def close(self) -> None:
        self._tar.close()
