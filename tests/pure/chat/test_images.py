"""What is kept of an image that a person gives: its pixels, and nothing else."""

import hashlib
import io
import os
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conductor_core.chat import images
from conductor_core.chat.images import MOST_KEPT_BYTES, MOST_SIDE, prepare, read_image
from conductor_core.errors import BadInput
from tests.support.pictures import encoded


def opened(data: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def noise(kind: str, side: int, mode: str = "RGB", **options: object) -> bytes:
    channels = len(Image.new(mode, (1, 1)).getbands())
    file = io.BytesIO()
    Image.frombytes(mode, (side, side), random.Random(0).randbytes(side * side * channels)).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("kind", "media_type"),
    [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("WEBP", "image/png"), ("GIF", "image/png")],
)
def test_each_format_is_told_by_its_content(kind: str, media_type: str) -> None:
    image = prepare(encoded(kind), "picture")
    assert (image.media_type, image.width, image.height) == (media_type, 40, 30)
    assert image.sha256 == hashlib.sha256(image.data).hexdigest()
    assert image.size_bytes == len(image.data)
    assert opened(image.data).convert("RGB").getpixel((5, 5)) == pytest.approx((200, 30, 30), abs=4)


def test_place_camera_and_comments_are_removed_and_a_photograph_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees
    exif[0x010F] = "Camera of Ada"
    exif.get_ifd(0x8825)[2] = (52.0, 31.0, 12.0)
    raw = encoded("JPEG", exif=exif, comment=b"secret comment", icc_profile=b"secret profile")
    image = prepare(raw, "photo")
    assert (image.width, image.height) == (30, 40)
    kept = opened(image.data)
    assert not kept.getexif()
    assert not {"exif", "comment", "icc_profile"} & kept.info.keys()
    for word in (b"Camera of Ada", b"secret"):
        assert word in raw
        assert word not in image.data


def test_text_and_data_after_the_end_of_a_png_are_removed() -> None:
    from PIL.PngImagePlugin import PngInfo

    info = PngInfo()
    info.add_text("Author", "Ada", zip=False)
    raw = encoded("PNG", pnginfo=info) + b"<script>alert(1)</script>"
    kept = prepare(raw, "picture").data
    assert b"Ada" not in kept
    assert kept.endswith(b"IEND\xaeB`\x82")


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "I;16", "CMYK"])
def test_every_kind_of_pixels_is_taken(mode: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (20, 10), "red").convert("L" if mode == "I;16" else "RGB").convert(mode).save(
        file, "JPEG" if mode == "CMYK" else "PNG"
    )
    kept = opened(prepare(file.getvalue(), "picture").data)
    assert kept.size == (20, 10)


def test_what_is_see_through_stays_so() -> None:
    kept = opened(prepare(encoded("PNG", colour=(1, 2, 3, 0), mode="RGBA"), "picture").data)
    assert kept.mode == "RGBA"
    assert kept.getpixel((0, 0)) == (1, 2, 3, 0)


def test_of_a_moving_image_the_first_frame_is_kept() -> None:
    file = io.BytesIO()
    frames = [Image.new("RGB", (10, 10), colour) for colour in ("red", "blue")]
    frames[0].save(file, "GIF", save_all=True, append_images=frames[1:])
    kept = opened(prepare(file.getvalue(), "picture").data)
    assert getattr(kept, "n_frames", 1) == 1
    assert kept.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


def test_a_large_photograph_is_scaled_down() -> None:
    image = prepare(encoded("JPEG", size=(4000, 3000)), "photo")
    assert (image.width, image.height) == (MOST_SIDE, 1536)


def test_what_compresses_badly_stays_below_what_providers_take() -> None:
    image = prepare(noise("PNG", MOST_SIDE, "RGBA"), "picture")
    assert image.size_bytes <= MOST_KEPT_BYTES
    assert image.media_type == "image/jpeg"


def test_the_same_image_is_the_same_content() -> None:
    assert prepare(encoded(), "a").sha256 == prepare(encoded(compress_level=1), "b").sha256


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that says that it has so many pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"\0" * 1000)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", "it is empty"),
        (b"hello", "not a PNG, JPEG, WebP or GIF image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "not a PNG, JPEG, WebP or GIF image"),
        (encoded("TIFF"), "not a PNG, JPEG, WebP or GIF image"),
        (encoded("PNG", size=(300, 300))[:-200], "it is damaged"),
        (bomb(60_000, 60_000), "megapixels"),
        (bomb(20_000, 20_000), "megapixels"),
        (bomb(5_001, 5_000), "it has 5,001 x 5,000 pixels; at most 25 megapixels"),
        (encoded("GIF", size=(6_000, 5_000)), "it has 6,000 x 5,000 pixels; at most 25 megapixels"),
        (b"\x89PNG\r\n\x1a\n" + b"0" * ((20 << 20) + 1), "it has more than 20 MiB"),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_what_cannot_be_taken_is_one_clear_fault(raw: bytes, fault: str) -> None:
    with pytest.raises(BadInput, match=fault) as caught:
        prepare(raw, "image cat.png")
    assert str(caught.value).startswith("image cat.png: ")
    assert "\n" not in str(caught.value)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "folder.png").mkdir()
    for name, fault in (("none.png", "no such file"), ("folder.png", "it is a folder"), ("a\0b", "cannot be")):
        with pytest.raises(BadInput, match=fault):
            read_image(tmp_path / name)
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(BadInput, match="not a regular file"):
        read_image(tmp_path / "pipe.png")
    (tmp_path / "cat.txt").write_bytes(encoded("JPEG"))
    assert read_image(tmp_path / "cat.txt").media_type == "image/jpeg"


@given(st.sampled_from(images.FORMATS), st.data())
def test_a_damaged_image_is_a_fault_or_an_image(kind: str, data: st.DataObject) -> None:
    raw = bytearray(encoded(kind))
    for _ in range(data.draw(st.integers(1, 6))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        image = prepare(bytes(raw[: data.draw(st.integers(0, len(raw)))]), "picture")
    except BadInput:
        return
    assert opened(image.data).size == (image.width, image.height)
