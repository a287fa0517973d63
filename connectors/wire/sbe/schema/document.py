"""Reads a schema's XML into elements with file and line.

Elements are identified by local name: the namespaces and prefixes of published schemas differ. A document type with
declarations or an external file is refused, and so are entities; ``<!DOCTYPE xml>``, found in some schemas, is not. An
``include`` of the XInclude namespace is replaced by the root of the file that its ``href``, a URI, names; it must be in
the folder of the first file or below it. A ``fallback`` is not used.
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element as XmlElement
from xml.etree.ElementTree import tostring
from xml.sax import SAXException, handler

from defusedxml.common import DefusedXmlException, DTDForbidden
from defusedxml.sax import make_parser

from silverfold.conf.errors import SchemaError
from silverfold.conf.files import read_whole

_XINCLUDE = "http://www.w3.org/2001/XInclude"
MAX_DEPTH = 64
"""Deepest nesting of elements. Published schemas stay below ten."""
MAX_INCLUDES = 256
"""Most files one schema may include: files that include each other twice grow exponentially."""


@dataclass
class Element:
    """An element: attributes without a namespace, attributes with a foreign one, and its position."""

    tag: str
    namespace: str
    file: str
    line: int
    attributes: dict[str, str]
    foreign: dict[str, str]
    """Keys are ``{namespace}name``."""
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def get(self, name: str) -> str | None:
        """Return an attribute, stripped of white space; None if missing."""
        value = self.attributes.get(name)
        return None if value is None else value.strip()

    @property
    def name(self) -> str:
        """The attribute ``name``, empty if missing."""
        return self.get("name") or ""


def read_document(source: Path | bytes, *, file: str = "") -> Element:
    """Return the root element of a schema, with its includes replaced.

    Args:
        source: A file, or its contents; contents cannot include other files.
        file: File name for error messages; by default the path.

    Raises:
        SchemaError: E01. The XML is not well-formed, or has a forbidden declaration or include.
    """
    if isinstance(source, bytes):
        root = _parse(source, file)
        _include(root, _Includes(None))
        return root
    path = source.resolve()
    root = _parse(_read_file(path, file or str(source), None), file or str(source))
    _include(root, _Includes(path.parent), path)
    return root


def includes_files(contents: bytes, *, file: str) -> bool:
    """Return whether a schema includes other files. Raises SchemaError if it is not XML."""
    return _includes_any(_parse(contents, file))


def _includes_any(element: Element) -> bool:
    return any(_is_include(child) or _includes_any(child) for child in element.children)


def document_xml(root: Element) -> bytes:
    """Serialize the result of `read_document` as one document, without comments."""
    serialized: bytes = tostring(_to_xml(root), "utf-8")
    return serialized


def _is_include(element: Element) -> bool:
    return element.tag == "include" and element.namespace.endswith("/XInclude")


def _to_xml(element: Element) -> XmlElement:
    tag = f"{{{element.namespace}}}{element.tag}" if element.namespace else element.tag
    xml = XmlElement(tag, {**element.attributes, **element.foreign})
    xml.text = element.text
    xml.extend(map(_to_xml, element.children))
    return xml


class _Includes:
    """Resolves the includes of one schema: only inside the folder of the first file, and limited in number."""

    def __init__(self, within: Path | None) -> None:
        self._within = within
        self._left = MAX_INCLUDES

    def path(self, include: Element, opened: tuple[Path, ...]) -> Path:
        """Return the path that an include names, given the stack of files being read."""
        href = unquote(include.get("href") or "")
        if include.namespace != _XINCLUDE:
            detail = f"the namespace of an include is {_XINCLUDE}, not {include.namespace}"
            raise _error(detail, include.file, include.line)
        if include.get("parse") not in {None, "xml"} or include.get("xpointer") is not None or not href:
            raise _error("an include must name a whole XML file by href", include.file, include.line)
        if self._within is None:
            raise _error(f"{href} cannot be included: the schema is not a file", include.file, include.line)
        path = Path() if ":" in href or "\0" in href else (opened[-1].parent / href).resolve()
        if not path.is_relative_to(self._within):
            raise _error(f"{href} is outside the folder of the schema", include.file, include.line)
        if path in opened:
            raise _error(f"{href} includes itself", include.file, include.line)
        self._left -= 1
        if self._left < 0:
            raise _error(f"more than {MAX_INCLUDES} files are included", include.file, include.line)
        return path


def _include(element: Element, includes: _Includes, *opened: Path) -> None:
    """Replace the includes below ``element``, which is in the last of the ``opened`` files."""
    for index, child in enumerate(element.children):
        if not _is_include(child):
            _include(child, includes, *opened)
            continue
        path = includes.path(child, opened)
        root = _parse(_read_file(path, child.file, child.line), str(path))
        _include(root, includes, *opened, path)
        element.children[index] = root


def _read_file(path: Path, file: str, line: int | None) -> bytes:
    try:
        return read_whole(path)
    except OSError as error:
        raise _error(f"{path} cannot be read: {error.strerror}", file, line) from error


def _parse(contents: bytes, file: str) -> Element:
    builder = _Builder(file)
    parser = make_parser()
    parser.forbid_dtd = True
    parser.defused_start_doctype_decl = _check_document_type
    parser.setFeature(handler.feature_namespaces, True)
    parser.setContentHandler(builder)
    try:
        parser.parse(io.BytesIO(contents))
    except DefusedXmlException as error:
        what = "a document type that declares anything or names a file, or an entity, is not allowed"
        raise _error(what, file, builder.line) from error
    except SAXException as error:
        raise _error(f"not well-formed XML: {error.getMessage()}", file, builder.line) from error
    except (LookupError, ValueError) as error:  # an encoding unknown to Python or unusable for expat
        raise _error(f"not readable XML: {error}", file, builder.line) from error
    return builder.document.children[0]


def _check_document_type(name: str, system: str | None, public: str | None, has_subset: int) -> None:
    """Replace defusedxml's handler, which refuses any document type."""
    if system is not None or public is not None or has_subset:
        raise DTDForbidden(name, system, public)


def _error(detail: str, file: str, line: int | None) -> SchemaError:
    return SchemaError(detail, file=file, line=line, code="E01")


class _Builder(handler.ContentHandler):
    """Builds the tree, with the parser's position."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = file
        self.document = Element("", "", file, 1, {}, {})
        self._open = [self.document]
        self._texts: list[list[str]] = [[]]
        self._locator: Any = None

    @property
    def line(self) -> int:
        return int(self._locator.getLineNumber() or 1) if self._locator else 1

    def setDocumentLocator(self, locator: Any) -> None:  # noqa: N802 (the name is SAX's)
        self._locator = locator

    def startElementNS(self, name: tuple[str | None, str], _qname: str | None, attrs: Any) -> None:  # noqa: N802
        if len(self._open) > MAX_DEPTH:
            raise _error(f"elements nest deeper than {MAX_DEPTH}", self.file, self.line)
        element = Element(name[1], name[0] or "", self.file, self.line, {}, {})
        for (namespace, attribute), value in attrs.items():
            if namespace:
                element.foreign[f"{{{namespace}}}{attribute}"] = value
            else:
                element.attributes[attribute] = value
        self._open[-1].children.append(element)
        self._open.append(element)
        self._texts.append([])

    def endElementNS(self, _name: tuple[str | None, str], _qname: str | None) -> None:  # noqa: N802
        self._open.pop().text = "".join(self._texts.pop()).strip()

    def characters(self, content: str) -> None:
        self._texts[-1].append(content)
