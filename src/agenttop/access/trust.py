"""TLS: whose certificates are believed, and what went wrong in one sentence with what to do about it.

Believed is whom the system believes (OpenSSL's default places, `SSL_CERT_FILE` and `SSL_CERT_DIR`; the store
of Windows), and besides whoever is in a file given with `--ca-file`. There is no way to check nothing.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.oslayer import at_home
from agenttop.smallfile import read_text

MOST_BYTES = 4 * 1024 * 1024
CA_HINT = "--ca-file FILE adds a CA"


def context(ca_file: str | None = None) -> ssl.SSLContext:
    """What a client of ours checks servers with. Takes some 20 ms. Raises UsageError for a file of no use."""
    made = ssl.create_default_context()
    made.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        _add(made, Path(ca_file))
    return made


def check_ca_file(file: Path) -> str:
    """The absolute path of a file with certificates. Raises UsageError when it is none."""
    file = at_home(file).absolute()
    _add(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), file)
    return str(file)


def _add(made: ssl.SSLContext, file: Path) -> None:
    text = read_text(file, "a file with certificates", MOST_BYTES)
    hint = "it must hold PEM: -----BEGIN CERTIFICATE-----"
    if "-----BEGIN CERTIFICATE-----" not in text and "-----BEGIN TRUSTED CERTIFICATE-----" not in text:
        private = "; what it holds is a private key" if "PRIVATE KEY-----" in text else ""
        raise UsageError(f"{file}: holds no certificate{private}", hint)
    try:
        made.load_verify_locations(cafile=str(file))
    except OSError as error:  # ssl.SSLError is one
        reason = getattr(error, "reason", None) or error
        raise UsageError(
            f"{file}: holds no certificate that can be read: {clean(str(reason))}", hint
        ) from None
    # Whoever names a file believes what is in it, be it an authority, one below it, or the server's own
    # certificate; and one that somebody made with a few words of openssl seldom has every extension that
    # Python 3.13 insists on.
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    made.verify_flags &= ~ssl.VERIFY_X509_STRICT


# OpenSSL's X509_V_ERR_… numbers
_NOT_YET, _EXPIRED = 9, 10
_OWN_SIGNATURE, _UNKNOWN = 18, (19, 20, 21)
_WRONG_NAME, _WRONG_ADDRESS = 62, 64

_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
_OLD_TLS = ("UNSUPPORTED_PROTOCOL", "TLSV1_ALERT_PROTOCOL_VERSION", "VERSION_TOO_LOW")
_WANTS_CERTIFICATE = ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "SSLV3_ALERT_HANDSHAKE_FAILURE")


def sentence(error: ssl.SSLError, host: str, ca_file: str | None = None) -> str:
    """What is wrong with the TLS of a server, as the rest of a sentence that begins with its address."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _distrust(error, host, ca_file)
    reason = (error.reason or str(error)).upper().replace(" ", "_")
    if any(each in reason for each in _NO_TLS):
        return "does not speak TLS on that port: write http:// instead of https://, or check the port"
    if any(each in reason for each in _OLD_TLS):
        return "speaks only a version of TLS that is broken: switch on TLS 1.2 or 1.3 there"
    if reason == _WANTS_CERTIFICATE[0]:
        return "wants a certificate of the client, which agenttop has not got"
    if reason == _WANTS_CERTIFICATE[1]:
        return "has no TLS in common with this machine (versions or ciphers), or wants a client's certificate"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "hung up during the TLS handshake"
    return f"has no TLS that works: {clean(error.reason or str(error), 120)}"


def _distrust(error: ssl.SSLCertVerificationError, host: str, ca_file: str | None) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "has a certificate that has expired: renew it there (or this machine's clock is wrong)"
    if code == _NOT_YET:
        return "has a certificate that is not valid yet: check the clocks of both machines"
    if code in (_WRONG_NAME, _WRONG_ADDRESS):
        return (
            f"has a certificate for another name than {clean(host, 80)}: write the URL with one of its names"
        )
    if code == _OWN_SIGNATURE or code in _UNKNOWN:
        what = "signed by itself" if code == _OWN_SIGNATURE else "of a CA that this machine does not know"
        if ca_file is not None:
            return (
                f"has a certificate {what}, and {clean(Path(ca_file).name, 40)} does not vouch for it either"
            )
        if _nobody_trusted():
            what += " (Python finds no list of CAs here at all)"
        return f"has a certificate {what}: give the CA's with --ca-file FILE (PEM)"
    return f"has a certificate that is not trusted: {clean(error.verify_message, 120)}; {CA_HINT}"


def _nobody_trusted() -> bool:
    """Python of python.org on macOS begins without a list."""
    places = ssl.get_default_verify_paths()
    return not places.cafile and not places.capath and not hasattr(ssl, "enum_certificates")
