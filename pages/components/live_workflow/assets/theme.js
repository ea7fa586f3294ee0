// Which of Streamlit's two themes is on. The colours of status and agent follow it.

export function themeOf(root) {
  const background = getComputedStyle(root).getPropertyValue("--st-background-color").trim() || "#ffffff"
  return luminance(background) < 0.4 ? "dark" : "light"
}

function luminance(colour) {
  const probe = document.createElement("canvas").getContext("2d")
  probe.fillStyle = colour
  const hex = probe.fillStyle
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255)
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue
}
