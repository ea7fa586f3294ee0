"""Any messages, with any parts, for property tests."""

from hypothesis import strategies as st

from conductor_core.chat.messages import ImagePart, Message, Part, TextPart, ToolCallPart, ToolResultPart

texts = st.text(st.characters(codec="utf-8"), max_size=30)
image_parts = st.builds(
    ImagePart,
    sha256=st.text("0123456789abcdef", min_size=64, max_size=64),
    media_type=st.sampled_from(["image/png", "image/jpeg", "image/webp", "image/gif"]),
    width=st.integers(1, 10**6),
    height=st.integers(1, 10**6),
    size_bytes=st.integers(1, 10**9),
)
parts: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, text=texts),
    image_parts,
    st.builds(ToolCallPart, call_id=texts, name=texts, arguments=texts),
    st.builds(ToolResultPart, call_id=texts, text=texts, is_error=st.booleans()),
)
messages = st.builds(
    Message, role=st.sampled_from(["system", "user", "assistant"]), content=texts | st.lists(parts).map(tuple)
)
