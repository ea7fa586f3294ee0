// What the views of our components have in common: how Streamlit mounts them, and how much of the window is above them.

const PAGE = '[data-testid="stMainBlockContainer"]'
const SCROLLER = '[data-testid="stMain"]'

// Returns the function that Streamlit calls at mount and at each change of data or theme. It keeps one view per element:
// `make(parent)` returns it, `gone(parent)` is called after its end.
export function mounting(styles, make, gone = () => {}) {
  const views = new WeakMap()
  return (component) => {
    const { parentElement } = component
    let view = views.get(parentElement)
    if (!view) {
      parentElement.adoptedStyleSheets = styles
      view = make(parentElement)
      views.set(parentElement, view)
    }
    const call = (view.lastCall = {})
    view.update(component)
    return () => {
      // A change while this script loads makes Streamlit call it twice at once, and then clean up only the first call.
      if (view.lastCall !== call) return
      view.destroy()
      gone(parentElement)
      views.delete(parentElement)
    }
  }
}

// Puts `root` in the place that was kept for it, and keeps `--above` at the height of all that is above it on the page,
// at most `most`: the window's room is less by that much. Returns the observer, which is to be disconnected.
export function takePlace(parent, root, most = Infinity) {
  parent.querySelector(".reserved")?.remove()
  parent.append(root)
  let above = null
  const watching = new ResizeObserver(() => {
    const scrolled = parent.host.closest(SCROLLER)?.scrollTop ?? 0
    const now = Math.round(root.getBoundingClientRect().top + scrolled)
    if (now === above) return
    above = now
    root.style.setProperty("--above", `${Math.min(above, most)}px`)
  })
  watching.observe(parent.host.closest(PAGE) ?? document.body)
  return watching
}

export function restyled(root) {
  const theme = themeOf(root)
  if (root.dataset.theme !== theme) root.dataset.theme = theme
}

// Which of Streamlit's two themes is on. The colours of status and agent follow it.

function themeOf(root) {
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
