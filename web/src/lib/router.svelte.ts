/** Addresses of the page: `/`, `/labs/<id>`, `/sessions/<id>`, `/admin`. Plain history, no library. */

export type Route =
  | { name: 'labs' }
  | { name: 'lab'; id: string }
  | { name: 'session'; id: string }
  | { name: 'admin' };

export function parse(path: string): Route {
  const [head, id] = path.split('/').filter((part) => part !== '');
  if (head === 'labs' && id) return { name: 'lab', id: decodeURIComponent(id) };
  if (head === 'sessions' && id) return { name: 'session', id: decodeURIComponent(id) };
  if (head === 'admin') return { name: 'admin' };
  return { name: 'labs' };
}

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
