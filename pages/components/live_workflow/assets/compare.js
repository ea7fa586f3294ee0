// Entry of the component that compares two runs. Streamlit calls it at mount and at each change of data or theme.

import { ComparedRuns } from "./compared_runs.js"
import { sheets } from "./sheets.js"

const own = await sheets(["style.css", "graph.css", "timeline.css", "prose.css", "compare.css"])
const views = new WeakMap()

export default function mount(component) {
  const { parentElement } = component
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = own
    view = new ComparedRuns(parentElement)
    views.set(parentElement, view)
  }
  const call = (view.lastCall = {})
  view.update(component.data)
  return () => {
    if (view.lastCall !== call) return
    view.destroy()
    views.delete(parentElement)
  }
}
