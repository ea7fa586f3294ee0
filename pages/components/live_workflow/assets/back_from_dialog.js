// The focus after a dialog of the page: it comes back to the button that opened it, in the view that is there by then.

import { returnAfter } from "./keep_focus.js"

const DIALOG = '[role="dialog"]'

// Streamlit may build the view anew while a dialog is open.
let newest = null

export function isNewest(view) {
  newest = view
}

// `root`: of the view whose button, which has the focus, opens a dialog.
export function backFromDialog(root) {
  const words = root.getRootNode().activeElement?.textContent
  returnAfter(DIALOG, () => button(newest.root, words) ?? newest.bar.stop())
}

// Returns the button with these words that can be seen.
function button(root, words) {
  return [...root.querySelectorAll("button")].find((each) => each.textContent === words && each.checkVisibility())
}
