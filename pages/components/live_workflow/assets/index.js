// Entry of the component. Streamlit calls it at mount and again at each change of data or theme; one view per element.

import { LiveWorkflow } from "./view.js"

const views = new WeakMap()

export default function mount(component) {
  const { parentElement } = component
  let view = views.get(parentElement)
  if (!view) {
    view = new LiveWorkflow(parentElement)
    views.set(parentElement, view)
  }
  view.update(component)
  return () => {
    view.destroy()
    views.delete(parentElement)
  }
}
