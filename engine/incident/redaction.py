"""What is taken out of everything that goes into an incident file: credentials and prompts.

A credential is known by its name, by its shape, or because this process has it. A prompt has
neither: it is known by the name before it, and by being words in quotes where settings have one.
What is withheld by mistake costs a detail; what is shown by mistake cannot be taken back.

Engines choose the texts. So an expression begins at the beginning of a word alone, and what it has
passed in vain it does not pass again from the next character on.
"""

from __future__ import annotations

import html
import json
import os
import re
import unicodedata
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final
from urllib.parse import quote, quote_plus

from specdeck.engine.client.secret import hide_secrets
from specdeck.engine.fingerprint.secrecy import MASK, name_items, name_values, redact
from specdeck.engine.fingerprint.secret_names import is_secret
from specdeck.engine.plugin.secret_values import make_mask
from specdeck.engine.protocol.codec import loads, mend_text

WITHHELD: Final = "(withheld)"
"""Stands where a prompt, or what may be one, stood."""
_SHORTEST: Final = 6
"""Characters of a value from which on it is looked for everywhere."""
LONGEST_TEXT: Final = 20_000
"""Characters of one text; what is beyond is cut off."""
_BEYOND: Final = 1_000
"""Characters beyond it that are looked at: what the cut goes through is told by its whole."""

_SHAPES = re.compile(
    r"\b(?:hf_(?!overrides\b)[A-Za-z0-9]{8,}"  # which is an argument of vLLM's
    r"|gh[pousr]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}"
    r"|(?:sk|pk|rk)[-_][A-Za-z0-9_-]{8,}|xox[abprs]-[\w-]{8,}|nvapi-[\w-]{8,}"
    r"|A(?:KIA|SIA)[A-Z0-9]{12,}|AIza[\w-]{20,}|ya29\.[\w-]{10,}"
    r"|eyJ[\w-]{8,4000}+\.[\w-]{4,}+(?:\.[\w-]*)?"
    r"|(?:hooks\.slack\.com/\w+|discord(?:app)?\.com/api/webhooks|webhook\.office\.com/\w+)"
    r"/[^\s\"'<>]+)"
)
"""Tokens and webhooks that tell by their beginning whose they are."""
_BASIC = re.compile(r"\b((?:basic|digest|negotiate|token)\s+)[A-Za-z0-9+/=_-]{8,}", re.IGNORECASE)
_HEADER = re.compile(
    r"((?:proxy-)?authorization|(?:set-)?cookie|x-specdeck-token|x-api-key)"
    r"([\"']?\s*[:=,]\s*)[^\r\n]*",
    re.IGNORECASE,
)
"""Whatever stands behind these, to the end of the line."""
_KEY_BLOCK = re.compile(r"-----BEGIN [A-Z ]*KEY-----.*?(?:-----END [A-Z ]*KEY-----|\Z)", re.DOTALL)
_OPTION = re.compile(
    r"(?<![\w-])(--?[A-Za-z][\w.-]{0,100}+)([\"']?(?:\s*,\s*|[ =]\s*))(?!-)([^\n]+?)"
    r"(?=(?<!\s)\s+-|[\"']?(?:(?<!\s)\s+)?,\s*[\"']?-|\]|\n|$)"
)
"""An option and all that it is given, on a command line or in a list of arguments."""
_CALLED = re.compile(
    r"\b((?:pass(?:word|wd|phrase)|secret|tokens?|api[ _-]?keys?|credentials?)"
    r"(?:\s+(?:is|was|are))?\s+[\"'“«]?)(?=\S*\d)([^\s\"',;]{8,})",
    re.IGNORECASE,
)
"""A secret that somebody calls one, in words."""
_ACCOUNT = re.compile(r"((?<![\w-])(?:-u|--(?:proxy-)?user)[ =][\"']?)[^\s:\"']{1,100}+:[^\s\"']+")
"""A user and a password for curl."""
_ENCODED_PAIR = re.compile(
    r"(?<![\w.-])([\w.-]{1,100}+)(%(?:3D|22%3A(?:%20)?%22))([^\s\"'<>&]+)", re.IGNORECASE
)
"""A name and its value as one URL writes them into another."""
_LISTED = re.compile(
    r"(?<![A-Za-z0-9_.\-])([A-Za-z0-9_.\-]+)([\"']?\s*[=:]\s*)[\[({][^\])}]*[\])}]?"
)
_QUERY = re.compile(r"(\?)[^\s\"'<>#]*(?=[\s\"'<>#]|$)")
_LONG = re.compile(
    r"(?<![A-Za-z0-9+])(?=[a-z0-9+]*[A-Z])(?=[A-Za-z+]*\d)(?=[A-Z0-9+]*[a-z])[A-Za-z0-9+]{32,}={0,2}"
)
"""A long word of digits, capitals and small letters: no model is called so. Digests are hex."""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+=*")

_PROMPT_NAMES: Final = frozenset({
    "answer", "answers", "arguments", "assistant", "bad_words", "body", "chat", "chat_template",
    "choice", "completion", "completions", "content", "contents", "conversation",
    "default_system_prompt", "document", "documents", "grammar", "guided_choice",
    "guided_grammar", "guided_json", "guided_regex", "history", "input", "input_text",
    "input_value", "inputs", "instruction", "instructions", "json_schema", "message",
    "messages", "output", "output_token_ids", "outputs", "prompt", "prompt_logprobs",
    "prompt_text", "prompt_token_ids", "prompts", "queries", "query", "question", "questions",
    "regex", "response", "responses", "schema", "stop", "structured_outputs", "suffix",
    "system", "system_prompt", "text", "texts", "token_ids", "tools", "user",
})  # fmt: skip
_MARK = re.compile(
    r"(?<!\w)(\w+)([\"']?\s*[=:]\s*)(?=\S)(?!//)(?!\d+(?:\.\d+)?(?:[\s,;)\]}]|$))"
    r"(?!(?:None|null|true|false)\b)",
    re.IGNORECASE,
)
"""A word that a value follows which is no number."""
_PROMPT_WORD = re.compile(
    r"(?<![A-Za-z0-9])(?:prompt|prompts|messages|message|content|input_value|input_text|completion"
    r"|output|outputs|query|question|instruction|instructions|suffix|body|json_schema|token_ids"
    r"|stop|bad_words|chat_template|text)\Z|(?<![A-Za-z0-9])guided_\w",
    re.IGNORECASE,
)
"""The end of a word that names what requests say."""
_OPENER = re.compile("['\"“«„]")
_CLOSES: Final = {
    "'": re.compile(r"(?:[^'\\\n]++|\\.)*+'"), '"': re.compile(r"(?:[^\"\\\n]++|\\.)*+\""),
    "“": re.compile("[^”\n]*+”"), "«": re.compile("[^»\n]*+»"), "„": re.compile("[^“\n]*+“"),
}  # fmt: skip
"""What stands behind an opening mark, up to the closing one."""
_TOLD = re.compile(
    r"\b(prompts?|messages?|questions?|answers?|asked|asks|saying|said|wrote)"
    r"(?:\s+[A-Z\"'“«„]\S*(?:\s+\S+){2,}|(?:\s+\S+){6,})"
)
"""In words of a person: what was asked, or a long clause after it."""
_SPOKEN: Final = 3
"""Words: nothing that is set is called so."""
_REQUEST_LINE = re.compile(r"[\"'](?:GET|PUT|POST|HEAD|OPTIONS|DELETE|PATCH) \S+ HTTP/[\d.]+[\"']")
_NUMBERS = re.compile(r"\[\s*-?\d+(?:\s*,\s*-?\d+){7,}[^\]]*\]?")
"""Eight numbers in a row may be a prompt's tokens."""


class Redactor:
    """Takes out what must not leave the machine; `secrets` are values that are looked for."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {one.strip() for one in secrets if len(one.strip()) >= _SHORTEST}
        spelt = {form for secret in known for form in _spell(secret)}
        self._secrets = tuple(sorted(spelt, key=lambda one: (-len(one), one)))
        self._known = tuple(sorted(known))
        self._encoded = tuple(sorted({form for one in known for form in _encode_within(one)}))
        self._beyond = max([_BEYOND, *map(len, spelt)])
        self._mask_cut = make_mask(known)

    def hide_credentials(self, text: str) -> str:
        """`text` without credentials; what else it says stays.

        >>> redactor = Redactor(["correct-horse"])
        >>> redactor.hide_credentials("key correct-horse at https://u:pw@hub/x?sig=1")
        'key *** at https://***@hub/x?***'
        >>> redactor.hide_credentials("vllm serve m --api-key abc --port 8000")
        'vllm serve m --api-key *** --port 8000'
        >>> redactor.hide_credentials("{'api_key': ['abc', 'def'], 'max_tokens': 5}")
        "{'api_key': ***, 'max_tokens': 5}"
        """
        text = mend_text(text)
        if len(text) > LONGEST_TEXT:
            found = self._hide_credentials(text[: LONGEST_TEXT + self._beyond])
            # Its end may be of a credential that goes on behind it.
            return f"{found[: min(LONGEST_TEXT - 1, len(found) - self._beyond)]}…"
        return self._hide_credentials(text)

    def _hide_credentials(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, MASK)
        if any(one in text for one in self._encoded):
            text = _BASE64.sub(self._hide_encoded, text)
        text = self._mask_cut(text)
        begun = min((_find_begun(text, one) for one in self._known), default=len(text))
        text = text if begun == len(text) else f"{text[:begun]}{MASK}"
        text = hide_secrets(text)
        text = _KEY_BLOCK.sub(MASK, text)
        text = _HEADER.sub(rf"\1\2{MASK}", text)
        text = redact(text)  # before what looks no further than the next bracket
        text = _LISTED.sub(_hide_listed, text)
        text = _OPTION.sub(_hide_option, text)
        text = _BASIC.sub(rf"\1{MASK}", text)
        text = _QUERY.sub(_hide_query, text)
        text = _CALLED.sub(rf"\1{MASK}", _ACCOUNT.sub(rf"\1{MASK}", text))
        text = _ENCODED_PAIR.sub(_hide_option, text)
        return _LONG.sub(MASK, _SHAPES.sub(MASK, text))

    def _hide_encoded(self, word: re.Match[str]) -> str:
        return MASK if any(one in word[0] for one in self._encoded) else word[0]

    def hide(self, text: str) -> str:
        """`text` without credentials, and without what may be a prompt or an answer.

        >>> redactor = Redactor()
        >>> redactor.hide("prompt: 'Dear Ann, the results are', k=3")
        'prompt: (withheld)'
        >>> redactor.hide("failed on “my name is Ann Example” again")
        'failed on (withheld) again'
        >>> redactor.hide("after the upgrade, k 5 → 3 is 'better'")
        "after the upgrade, k 5 → 3 is 'better'"
        """
        found = self.hide_credentials(text)
        found = _NUMBERS.sub(WITHHELD, found)
        if (mark := _find_prompt_mark(found)) is not None:
            # Where a prompt ends nobody can tell: it may hold any quote and any name.
            found = f"{found[: mark.end()].rstrip()} {WITHHELD}"
        return _hide_quoted(found)

    def hide_said(self, text: str) -> str:
        """The same of what a person may have written: also where a prompt is told without quotes.

        >>> Redactor().hide_said("worse for prompt Dear Ann, your results")
        'worse for prompt (withheld)'
        >>> Redactor().hide_said("long prompts collapsed")
        'long prompts collapsed'
        """
        found = self.hide(text)
        if (told := _TOLD.search(found)) is not None and WITHHELD not in told[0]:
            found = f"{found[: told.end(1)]} {WITHHELD}"
        return found

    def hide_settings(self, value: Any) -> Any:
        """`hide_in` for settings and variables: what has four words is no setting.

        >>> Redactor().hide_settings({"model": "/m/a", "greeting": "You are a bank's helper"})
        {'model': '/m/a', 'greeting': '(withheld)'}
        """
        return self._map_settings(self.hide_in(value))

    def _map_settings(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._map_settings(one) for name, one in value.items()}
        if isinstance(value, list):
            return [self._map_settings(one) for one in value]
        if not isinstance(value, str):
            return value
        if value.lstrip()[:1] in ("{", "["):
            with suppress(ValueError):
                return json.dumps(self.hide_settings(loads(value)))
        return WITHHELD if len(value.split()) >= 4 else value

    def hide_in(self, value: Any, name: str = "") -> Any:
        """A JSON value without both: what has a credential's or a prompt's name is masked.

        >>> Redactor().hide_in({"hf_token": "abc", "k": 3, "messages": [{"content": "hi"}]})
        {'hf_token': '***', 'k': 3, 'messages': '(withheld)'}
        """
        if isinstance(value, Mapping):
            return {
                self.hide(key): self._hide_named(borne, one)
                for key, borne, one in name_values(value)
            }
        if isinstance(value, list | tuple):
            return [
                self.hide_in(one, name) if borne == name else self._hide_named(borne, one)
                for borne, one in name_items(name, value)
            ]
        return self.hide(value) if isinstance(value, str) else value

    def hide_texts(self, value: Any) -> Any:
        """A JSON value with its texts cleaned; its numbers and its shape stay as they are."""
        if isinstance(value, Mapping):
            return {
                self.hide(key): self._mask_texts(one) if is_secret(borne) else self.hide_texts(one)
                for key, borne, one in name_values(value)
            }
        if isinstance(value, list | tuple):
            return [
                self._mask_texts(one) if is_secret(borne) else self.hide_texts(one)
                for borne, one in name_items("", value)
            ]
        return self.hide_said(value) if isinstance(value, str) else value

    def _hide_named(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if is_secret(name):
            # Of a mapping's numbers it is more likely that they count tokens.
            return self._mask_texts(value) if isinstance(value, Mapping) else MASK
        if name.lower() in _PROMPT_NAMES and _may_speak(value):
            return WITHHELD
        return self.hide_in(value, name)

    def _mask_texts(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {self.hide(str(key)): self._mask_texts(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._mask_texts(one) for one in value]
        return MASK if isinstance(value, str) else value


def _may_speak(value: Any) -> bool:
    """Whether a value under a prompt's name may be one: numbers and settings' words are none."""
    if isinstance(value, str):
        return bool(value.strip())
    if isinstance(value, Mapping):
        return any(map(_may_speak, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_may_speak, value)) or len(value) >= 8
    return False


_ESCAPED = re.compile(r"%[0-9A-F]{2}")
_FORMS: Final = ("NFC", "NFD")
"""A letter with its accent, and as two characters."""


def _spell(secret: str) -> set[str]:
    """How JSON, a URL, Python, HTML and what encodes bytes write it."""
    composed = {secret, *(unicodedata.normalize(form, secret) for form in _FORMS)}
    return {spelt for one in composed for spelt in _spell_letters(one)}


def _spell_letters(secret: str) -> set[str]:
    data, in_json = secret.encode(errors="surrogatepass"), json.dumps(secret)[1:-1]
    urls = {quote(data, safe=""), quote(data), quote_plus(data)}
    urls |= {_ESCAPED.sub(lambda found: found[0].lower(), one) for one in urls}
    return {
        secret, in_json, in_json.replace("/", "\\/"), json.dumps(in_json)[1:-1],
        repr(secret)[1:-1], ascii(secret)[1:-1], repr(data)[2:-1], data.decode("latin-1"),
        html.escape(secret), secret.replace(os.linesep, "\\n"),
        *urls, *(quote(one, safe="") for one in urls), data.hex(), data.hex().upper(),
    }  # fmt: skip


def _encode_within(secret: str) -> set[str]:
    """What base64 makes of it wherever it stands in what is encoded, such as `user:secret`.

    Three characters are four of base64: of those at the edges bits are its neighbours'.
    """
    data, found = secret.encode(errors="surrogatepass"), set()
    for before in range(3):
        first, last = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            found.add(encode(bytes(before) + data)[first:last].decode())
    return found


def _find_begun(text: str, secret: str) -> int:
    """Where at the end of `text` a secret begins that a cut has ended; its length for none."""
    at = max(0, len(text) - len(secret) + 1)
    while (at := text.find(secret[:_SHORTEST], at)) >= 0:
        if secret.startswith(text[at:]):
            return at
        at += 1
    return len(text)


def _hide_listed(found: re.Match[str]) -> str:
    if not is_secret(found[1]):
        return found[0]
    return f"{found[1]}{found[2]}{MASK}"


def _hide_option(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2]}{MASK}" if is_secret(found[1].lstrip("-")) else found[0]


def _hide_query(found: re.Match[str]) -> str:
    """What a URL asks: of vLLM's own routes nothing is asked that way."""
    return f"?{MASK}" if "=" in found[0] else found[0]


def _find_prompt_mark(text: str) -> re.Match[str] | None:
    """The first name of what requests say that such a value follows."""
    return next((mark for mark in _MARK.finditer(text) if _PROMPT_WORD.search(mark[1])), None)


def _hide_quoted(text: str) -> str:
    """`text` with what may be a prompt in quotes withheld; a quote ends with its line."""
    parts, shown, at = [], 0, 0
    unclosed: dict[str, int] = {}
    while (opener := _OPENER.search(text, at)) is not None:
        mark, start = opener[0], opener.start()
        at = start + 1
        if start < unclosed.get(mark, 0):
            continue
        closed = _CLOSES[mark].match(text, at)
        if closed is None:  # nor is any later one of its kind, up to the end of the line
            end = text.find("\n", start)
            unclosed[mark] = len(text) if end < 0 else end
            continue
        at = closed.end()
        parts += [text[shown:start], _hide_spoken(text[start:at])]
        shown = at
    return "".join((*parts, text[shown:]))


def _hide_spoken(text: str) -> str:
    if _REQUEST_LINE.fullmatch(text):
        return text
    is_spoken = len(text[1:-1].split(None, _SPOKEN)) >= _SPOKEN
    return WITHHELD if is_spoken or len(text) > 200 else text
