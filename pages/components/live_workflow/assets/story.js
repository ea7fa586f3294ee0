// Entry of the first screen's story. Streamlit calls it at mount and at each change of data or theme.

import { BASE } from "./base.js"
import { sheets } from "./sheets.js"
import { StoryView } from "./story_view.js"

const own = await sheets(["style.css", "prose.css", "story.css"])
const views = new WeakMap()

async function told() {
  const response = await fetch(new URL("api/story", BASE))
  if (!response.ok) throw new Error(`${response.status}`)
  return response.json()
}

export default function mount(component) {
  const { parentElement } = component
  let view = views.get(parentElement)
  if (!view) {
    parentElement.adoptedStyleSheets = own
    view = new StoryView(parentElement, { told })
    views.set(parentElement, view)
  }
  const call = (view.lastCall = {})
  view.update(component)
  return () => {
    if (view.lastCall !== call) return
    view.destroy()
    views.delete(parentElement)
  }
}
