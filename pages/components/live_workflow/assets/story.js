// Entry of the first screen's story.

import { BASE } from "./base.js"
import { mounting } from "./mounting.js"
import { sheets } from "./sheets.js"
import { StoryView } from "./story_view.js"

const own = await sheets(["style.css", "prose.css", "story.css"])

async function told() {
  const response = await fetch(new URL("api/story", BASE))
  if (!response.ok) throw new Error(`${response.status}`)
  return response.json()
}

export default mounting(own, (parent) => new StoryView(parent, { told }))
