/** Addresses of the page: `/`, `/labs/<id>`, `/sessions/<id>`, `/admin`; anything else is the list. */
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
