"""As much of curl as the printed calls use, for machines that have only Python."""

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("-s", action="store_true")
parser.add_argument("-i", action="store_true")
parser.add_argument("-o")
parser.add_argument("-X", default="GET")
parser.add_argument("-H", action="append", default=[])
parser.add_argument("--data-binary")
parser.add_argument("url")
given = parser.parse_args()

body = sys.stdin.buffer.read() if given.data_binary == "@-" else None
request = urllib.request.Request(given.url, method=given.X, data=body)
for header in given.H:
    request.add_header(*header.split(": ", 1))
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as error:
    answer = error
text = answer.read()
if given.i:
    text = f"HTTP/1.1 {answer.status} {answer.reason}\r\n\r\n".encode() + text
if given.o:
    Path(given.o).write_bytes(text)
else:
    sys.stdout.buffer.write(text)
