"""The models of the PyPI package ``unitycatalog-client``, which its authors generate from the API's document (``delta.yaml``).

Bodies are checked by the fields that the models declare, because 0.7.0 itself reads no body with a schema or an update: its
``from_dict`` takes only the discriminator of those, and refuses types that are strings.
"""

import sys
from importlib import import_module
from typing import get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from tests.support.packages import installed

VERSION = "0.7.0"


def model(name):
    """Return a model by its name, such as ``DeltaLoadTableResponse``."""
    folder = str(installed(f"unitycatalog-client-{VERSION}", f"unitycatalog-client=={VERSION}"))
    if folder not in sys.path:
        sys.path.append(folder)  # at the end: everything else comes from the environment
    words = name.replace("UUID", "Uuid")
    module = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in words)
    return getattr(import_module(f"unitycatalog.delta.models.{module[1:]}"), name)


def check(name, body):
    """Check that a body is of a model, with every required field and no others; return the body."""
    _check(model(name), body, name)
    return body


def _check(kind, value, where):
    """Check a value against a model, a list or dictionary of models, or any other annotation."""
    if value is None and type(None) in get_args(kind):
        return
    kinds = (
        [each for each in get_args(kind) if each is not type(None)]
        if type(None) in get_args(kind)
        else [kind]
    )
    kind = kinds[0]
    if get_origin(kind) is list:
        for number, each in enumerate(value):
            _check(get_args(kind)[0], each, f"{where}.{number}")
    elif isinstance(kind, type) and issubclass(kind, BaseModel):
        _check_model(kind, value, where)
    else:
        TypeAdapter(kind).validate_python(value)


def _check_model(kind, value, where):
    classes = next((found for name, found in vars(kind).items() if name.endswith("class_map")), None)
    if classes is not None:
        if isinstance(value, str) and kind.__name__ == "DeltaDataType":
            return
        discriminator = vars(kind)[f"_{kind.__name__}__discriminator_property_name"]
        kind = model(classes[value[discriminator]])
    fields = {field.alias or name: field for name, field in kind.model_fields.items()}
    if not fields or kind.__name__ == "DeltaStructFieldMetadata":
        return  # anything
    unknown = value.keys() - fields.keys()
    missing = {name for name, field in fields.items() if field.is_required()} - value.keys()
    assert not unknown, f"{where} has {unknown}"
    assert not missing, f"{where} lacks {missing}"
    for name, each in value.items():
        annotation = fields[name].annotation
        _check(annotation, each, f"{where}.{name}")
