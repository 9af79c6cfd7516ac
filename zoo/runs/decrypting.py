"""Decrypting at a target party: the map that a source made of encrypted places, with the file of keys that stays here."""

from pathlib import Path

from zoo.release.decryption import KeyPair, decrypted
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys


def decrypt(encrypted: Path | str, key: Path | str, out: Path | str, *, trusted: Path | str | None = None) -> Release:
    """Decrypt the map that a source has published, and write it as a release that `fit` reads.

    Args:
        encrypted: Folder of the source's release, of kind ``encrypted_map``.
        key: File of keys that `ProjectionPublisher` wrote with ``secret_key``.
        out: Folder to write; must not exist.
        trusted: Public keys, one of which must have signed what the source published; the decrypted release has no signature.

    Returns:
        The release, as it was written, with the record and the ledger of the encrypted one.

    Raises:
        FileExistsError: There is something at ``out``.
        FileNotFoundError: There is no file of keys, or no release.
        SignatureError: None of the trusted keys has signed the release.
        ReleaseError: The release is damaged, of another kind, made with other keys, or cannot have the noise that it claims.
        MissingLibraryError: What decrypts is not installed.
    """
    out = Path(out)
    if out.exists():
        raise FileExistsError(f"{out} exists, and a release is never overwritten. Choose another path or remove it.")
    keys = KeyPair.read(key)
    release = Release.load(encrypted, None if trusted is None else TrustedKeys.read(trusted))
    made = decrypted(release, keys)
    made.save(out)
    return made
