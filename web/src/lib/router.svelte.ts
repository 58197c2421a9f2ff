/** Where the page is. Plain history, no library. */
import { parse } from './route.ts';

class Router {
  path = $state(location.pathname);
  route = $derived(parse(this.path));

  constructor() {
    addEventListener('popstate', () => {
      this.path = location.pathname;
    });
    // Links are real links (they open in a new tab if asked to); a plain click stays in the page.
    document.addEventListener('click', (event) => {
      if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
      const link = (event.target as Element | null)?.closest?.('a');
      const href = link?.getAttribute('href');
      if (!link || !href?.startsWith('/') || href.startsWith('/api/') || link.target) return;
      event.preventDefault();
      this.go(href);
    });
  }

  go(path: string, replace = false): void {
    if (path === location.pathname) {
      this.path = path;
      return;
    }
    if (replace) history.replaceState(null, '', path);
    else history.pushState(null, '', path);
    this.path = path;
    scrollTo(0, 0);
  }
}

export const router = new Router();
