"""An application server: pushes as the libraries pywebpush and py-vapid make them.

    python_sender.py key FILE   makes a VAPID key and prints its public half in base64url
    python_sender.py push FILE  sends the pushes that the file lists and prints the answers
"""

import json
import sys

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from py_vapid import Vapid01, Vapid02
from py_vapid.utils import b64urlencode
from pywebpush import WebPushException, webpush

SCHEMES = {"vapid": Vapid02, "WebPush": Vapid01}
TTL_S = 3600
TIMEOUT_S = 10


def make_key(path):
    key = Vapid02()
    key.generate_keys()
    key.save_key(path)
    public = key.public_key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    print(b64urlencode(public))


def push(subscription, key, text, encoding, scheme, headers=None):
    try:
        response = webpush(
            subscription,
            text,
            vapid_private_key=SCHEMES[scheme].from_file(key),
            vapid_claims={"sub": "mailto:tests@example.com"},
            content_encoding=encoding,
            ttl=TTL_S,
            timeout=TIMEOUT_S,
            headers=headers,
        )
    except WebPushException as refused:
        response = refused.response
    return {"status": response.status_code, "body": response.text, "link": response.headers.get("link")}


def push_all(path):
    with open(path, encoding="utf-8") as orders:
        print(json.dumps([push(**order) for order in json.load(orders)]))


if __name__ == "__main__":
    {"key": make_key, "push": push_all}[sys.argv[1]](sys.argv[2])
