"""Keys and certificates of a federation: its own authority, the server's certificate, and a key pair for each client.

Private files can be read by their owner only, from the moment at which they exist; nothing that exists is overwritten.
"""

import datetime
import ipaddress
import os
import pathlib
from typing import Any

DAY = datetime.timedelta(days=1)
AUTHORITY, SERVER = "ca", "server"
LOCAL = ("localhost", "127.0.0.1", "::1")  # Flower's own processes speak to the server by these
Path = str | os.PathLike[str]


def make_authority(directory: Path, days: int = 3650) -> tuple[pathlib.Path, pathlib.Path]:
    """A certificate authority: the files ca.crt, which every client gets, and ca.key, which signs and stays at home."""
    x509, ec, _, _ = _cryptography()
    directory = pathlib.Path(directory)
    certificate, key = directory / f"{AUTHORITY}.crt", directory / f"{AUTHORITY}.key"
    _free(certificate, key)
    private = ec.generate_private_key(ec.SECP384R1())
    # The name has a number of its own, so that two authorities are never taken for each other.
    name = _name(f"FedLoom federation {x509.random_serial_number():x}"[:60])
    usage = _usage(signs_certificates=True)
    made = (
        _builder(name, name, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
    )
    _write(key, _private_pem(private), private=True)
    _write(certificate, _signed(made, private))
    return certificate, key


def make_server_certificate(
    directory: Path, hosts: list[str] | tuple[str, ...], days: int = 825
) -> tuple[pathlib.Path, pathlib.Path]:
    """The server's certificate for host names and addresses, signed by the authority in the directory."""
    x509, ec, serialization, _ = _cryptography()
    directory = pathlib.Path(directory)
    certificate, key = directory / f"{SERVER}.crt", directory / f"{SERVER}.key"
    _free(certificate, key)
    authority = _certificate(directory / f"{AUTHORITY}.crt")
    signer: Any = serialization.load_pem_private_key(_read(directory / f"{AUTHORITY}.key"), None)
    private = ec.generate_private_key(ec.SECP384R1())
    names = [_general_name(host) for host in dict.fromkeys([*hosts, *LOCAL])]
    made = (
        _builder(_name(f"{hosts[0] if hosts else LOCAL[0]}"[:60]), authority.subject, private.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()), critical=False)
    )
    _write(key, _private_pem(private), private=True)
    _write(certificate, _signed(made, signer))
    return certificate, key


def make_client_key(path: Path) -> pathlib.Path:
    """A client's key pair: the private key at the path, and beside it the .pub file that the server registers."""
    _, ec, serialization, _ = _cryptography()
    path = pathlib.Path(path)
    public = path.with_name(path.name + ".pub")
    _free(path, public)
    private = ec.generate_private_key(ec.SECP384R1())
    openssh = serialization.PrivateFormat.OpenSSH
    _write(path, private.private_bytes(serialization.Encoding.PEM, openssh, serialization.NoEncryption()), private=True)
    _write(public, public_key(path).encode() + b"\n")
    return public


def public_key(path: Path) -> str:
    """The public key in one line, from a private key or from a .pub file, without its comment."""
    _, ec, serialization, _ = _cryptography()
    data = _read(pathlib.Path(path))
    try:
        if data.startswith(b"ecdsa-"):
            found: Any = serialization.load_ssh_public_key(data)
        else:
            found = serialization.load_ssh_private_key(data, None)
            found = found.public_key()
        if not isinstance(found, ec.EllipticCurvePublicKey):
            raise ValueError
    except Exception:  # of several kinds, none of which says more
        raise ValueError(f"{path} is not a client's key; make one with `fedloom federate init --tls`.") from None
    text: bytes = found.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return text.decode()


def check_certificate(certificate: Path, authority: Path, host: str) -> str:
    """What is wrong with a server's certificate, in a sentence; "" if nothing is."""
    x509, *_ = _cryptography()
    try:
        own, ca = _certificate(pathlib.Path(certificate)), _certificate(pathlib.Path(authority))
    except ValueError as error:
        return str(error)
    try:
        own.verify_directly_issued_by(ca)
    except Exception:  # InvalidSignature, TypeError or ValueError: all say that it is another's
        return f"{certificate} was not signed by {authority}; make it anew in that directory."
    now = datetime.datetime.now(datetime.UTC)
    for file, found in ((certificate, own), (authority, ca)):
        if now > found.not_valid_after_utc:
            return f"{file} has expired on {found.not_valid_after_utc:%Y-%m-%d}; make a new one."
        if now < found.not_valid_before_utc:
            return f"{file} is not valid before {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC; compare the clocks."
    try:
        names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return f"{certificate} names no host at all; make a new one."
    if _general_name(host) not in list(names):
        known = ", ".join(str(name.value) for name in names)
        return f"{certificate} is for {known}, not for {host!r}; make one with this name, or use one of those."
    return ""


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ModuleNotFoundError("Keys and certificates need: pip install 'fedloom[flower]'") from None
    return x509, ec, serialization, hashes


def _name(text: str) -> Any:
    x509, *_ = _cryptography()
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> Any:
    x509, *_ = _cryptography()
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise ValueError(f"hosts: {host!r} is neither a host name nor an address.") from None


def _usage(signs_certificates: bool) -> Any:
    x509, *_ = _cryptography()
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    nothing = dict.fromkeys([*others, "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        **nothing,
    )


def _builder(subject: Any, issuer: Any, key: Any, days: float) -> Any:
    x509, *_ = _cryptography()
    now = datetime.datetime.now(datetime.UTC)
    end = now + days * DAY
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - DAY)  # clocks of other machines may be behind
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _signed(builder: Any, signer: Any) -> bytes:
    *_, serialization, hashes = _cryptography()
    made: bytes = builder.sign(signer, hashes.SHA384()).public_bytes(serialization.Encoding.PEM)
    return made


def _private_pem(key: Any) -> bytes:
    _, _, s, _ = _cryptography()
    made: bytes = key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
    return made


def _certificate(file: pathlib.Path) -> Any:
    x509, *_ = _cryptography()
    data = _read(file)
    try:
        return x509.load_pem_x509_certificate(data)
    except ValueError:
        raise ValueError(f"{file} is not a certificate in PEM format.") from None


def _read(file: pathlib.Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}.") from None


def _free(*files: pathlib.Path) -> None:
    for file in files:
        if file.exists():
            raise FileExistsError(f"{file} exists and is not overwritten; move it away first.")


def _write(file: pathlib.Path, data: bytes, private: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o644)
    except FileExistsError:
        raise FileExistsError(f"{file} exists and is not overwritten; move it away first.") from None
    with os.fdopen(opened, "wb") as f:
        f.write(data)
