// Entry of the component. Streamlit calls it at mount and again at each change of data or theme; one view per element.

import { copyAsWritten } from "./copying.js"
import { enter, leave } from "./draw_formulas.js"
import { sheets } from "./sheets.js"
import { LiveWorkflow } from "./view.js"

const own = await sheets(["style.css", "graph.css", "timeline.css", "prose.css", "reader.css", "edit.css"])

const views = new WeakMap()

export default function mount(component) {
  const { parentElement } = component
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = own
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
