"""What is wrong with the connection to the server, in a sentence: Flower itself says little, or nothing at all."""

import ipaddress
import pathlib
import socket
import ssl

# OpenSSL's numbers for what it found.
EXPIRED, NOT_YET, WRONG_NAME, WRONG_ADDRESS = 10, 9, 62, 64


def parts(address: str) -> tuple[str, int]:
    """Host and port of "host:port" or "[host]:port"."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or not host:
        raise ValueError(f"The address of the server is {address!r}; write it as HOST:PORT.")
    return host.strip("[]"), int(port)


def listens(address: str, seconds: float = 5.0) -> bool:
    """Does anybody listen there?"""
    try:
        with socket.create_connection(parts(address), seconds):
            return True
    except OSError:
        return False


def problem(address: str, ca: str | pathlib.Path | None, seconds: float = 5.0) -> tuple[str, bool]:
    """What is wrong, "" if nothing; and whether that may pass by itself, as when nobody listens yet.

    Without a certificate authority the connection is to be without TLS.
    """
    host, port = parts(address)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    else:
        try:
            context.load_verify_locations(ca)
        except (OSError, ssl.SSLError) as error:
            return f"The certificate authority {ca} cannot be read: {error}.", False
    try:
        with socket.create_connection((host, port), seconds) as plain:
            try:
                with context.wrap_socket(plain, server_hostname=host):
                    pass
            except ssl.SSLCertVerificationError as error:
                return _certificate(error, address, host, ca), False
            except (ssl.SSLError, ConnectionError, TimeoutError):
                if ca is None:
                    return "", False  # no TLS, as it was asked for
                return (
                    f"The server at {address} does not speak TLS, so that anybody could be it. Start it with its "
                    "certificate, or say --insecure on both sides if the network is your own."
                ), False
    except OSError as error:
        return f"Nobody answers at {address}: {error.strerror or error}.", True
    if ca is None:
        return (
            f"The server at {address} speaks TLS, but this client has no certificate authority. Give it the file "
            "ca.crt of the federation."
        ), False
    return "", False


def _certificate(error: ssl.SSLCertVerificationError, address: str, host: str, ca: object) -> str:
    if error.verify_code == EXPIRED:
        return f"The certificate of the server at {address} has expired. Make a new one on the server."
    if error.verify_code == NOT_YET:
        return f"The certificate of the server at {address} is not valid yet. Compare the clocks of both machines."
    if error.verify_code in (WRONG_NAME, WRONG_ADDRESS):
        return (
            f"The certificate of the server at {address} is for another host than {host!r}. Use a name that it was "
            "made for, or make one with this name."
        )
    return (
        f"The certificate of the server at {address} was not signed by {ca}. Either this is another server, or "
        f"the file is of another federation ({error.verify_message})."
    )


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
