// Entry of the component. Streamlit calls it at mount and again at each change of data or theme; one view per element.

import { LiveWorkflow } from "./view.js"

// The stylesheet is part of this module: what measures itself by it and paints with its colours never runs without it. A
// link beside the component is fetched anew at each mount, and then comes after a script that has been loaded before.
const sheet = new CSSStyleSheet()
sheet.replaceSync(await text("style.css"))

async function text(name) {
  const response = await fetch(new URL(name, import.meta.url))
  if (!response.ok) throw new Error(`${name} could not be loaded: ${response.status}`)
  return response.text()
}

const views = new WeakMap()

export default function mount(component) {
  const { parentElement } = component
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = [sheet]
    view = new LiveWorkflow(parentElement)
    views.set(parentElement, view)
  }
  const call = (view.lastCall = {})
  view.update(component)
  return () => {
    // What changes while this script loads makes Streamlit call it twice at once and then take back the first call only.
    if (view.lastCall !== call) return
    view.destroy()
    views.delete(parentElement)
  }
}
