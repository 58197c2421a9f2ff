/** Lab texts: Markdown to clean HTML. The texts come from the operator's labs, but are cleaned all the same. */
import DOMPurify from 'dompurify';
import { marked } from 'marked';

const cache = new Map<string, string>();

const purifier = DOMPurify(window);
purifier.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A') {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer');
  }
  // A wide table scrolls by itself, and can be reached with the keyboard for that.
  if (node.nodeName === 'PRE') node.setAttribute('tabindex', '0');
});

export function html(markdown: string): string {
  const known = cache.get(markdown);
  if (known !== undefined) return known;
  const raw = marked.parse(markdown, { async: false, gfm: true });
  const clean = purifier.sanitize(raw, {
    USE_PROFILES: { html: true },
    FORBID_TAGS: ['style', 'form', 'input', 'button', 'textarea', 'select', 'dialog'],
    FORBID_ATTR: ['style', 'class', 'id', 'name'],
  });
  cache.set(markdown, clean);
  return clean;
}

/** A Svelte attachment: gives every code block a button that copies it. */
export function copyButtons(label: () => string, done: () => string): (node: HTMLElement) => void {
  return (node) => {
    for (const pre of node.querySelectorAll('pre')) {
      if (pre.querySelector('button')) continue;
      const button = document.createElement('button');
      button.type = 'button';
      button.className = 'copy';
      button.textContent = label();
      button.addEventListener('click', () => {
        const text = pre.querySelector('code')?.textContent ?? '';
        void copyText(text.replace(/\n$/, '')).then((ok) => {
          if (ok) button.textContent = done();
          setTimeout(() => (button.textContent = label()), 1500);
        });
      });
      pre.append(button);
    }
  };
}

/** To the clipboard; the old way where the new one is not allowed (plain http on another host). */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'off-screen';
    document.body.append(area);
    area.select();
    const ok = document.execCommand('copy');
    area.remove();
    return ok;
  }
}
