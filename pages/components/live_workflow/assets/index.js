// Entry of the component. Streamlit calls it at mount and again at each change of data or theme; one view per element.

import { copyAsWritten } from "./copying.js"
import { enter, leave } from "./draw_formulas.js"
import { LiveWorkflow } from "./view.js"

// The stylesheets are part of this module, so that code that measures and paints by them never runs without them. A
// link beside the component would be fetched again at each mount, and come after a script that is already there.
const sheets = await Promise.all(["style.css", "timeline.css", "prose.css", "reader.css"].map(styles))

async function styles(name) {
  const response = await fetch(new URL(name, import.meta.url))
  if (!response.ok) throw new Error(`${name} could not be loaded: ${response.status}`)
  return new CSSStyleSheet().replace(await response.text())
}

const views = new WeakMap()

export default function mount(component) {
  const { parentElement } = component
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = sheets
    enter(parentElement)
    copyAsWritten(parentElement)
    view = new LiveWorkflow(parentElement)
    views.set(parentElement, view)
  }
  const call = (view.lastCall = {})
  view.update(component)
  return () => {
    // A change while this script loads makes Streamlit call it twice at once, and then clean up only the first call.
    if (view.lastCall !== call) return
    view.destroy()
    leave(parentElement)
    views.delete(parentElement)
  }
}
