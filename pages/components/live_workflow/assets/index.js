// Entry of the component. Streamlit calls it at mount and again at each change of data or theme; one view per element.

import { copyAsWritten } from "./copying.js"
import { enter, leave } from "./draw_formulas.js"
import { LiveWorkflow } from "./view.js"

// The stylesheets are part of this module: what measures itself by them and paints with their colours never runs without
// them. A link beside the component is fetched anew at each mount, and then comes after a script that is there already.
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
    // What changes while this script loads makes Streamlit call it twice at once and then take back the first call only.
    if (view.lastCall !== call) return
    view.destroy()
    leave(parentElement)
    views.delete(parentElement)
  }
}
