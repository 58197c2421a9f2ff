/** The language of the page: the browser's at first, the student's choice from then on. */
import type { Lang, Text } from './api.ts';
import { words, type Words } from './words.ts';

const KEY = 'ttlab.lang';

function first(): Lang {
  const kept = read();
  if (kept) return kept;
  return navigator.languages.some((l) => l.toLowerCase().startsWith('zh')) && !navigator.language.startsWith('en')
    ? 'zh'
    : 'en';
}

function read(): Lang | null {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === 'en' || kept === 'zh' ? kept : null;
  } catch {
    return null; // storage may be forbidden: the page works without
  }
}

class I18n {
  lang = $state<Lang>(first());
  /** All words of the page in its language. */
  w = $derived<Words>(words[this.lang]);

  choose(lang: Lang): void {
    this.lang = lang;
    try {
      localStorage.setItem(KEY, lang);
    } catch {
      // not remembered, but switched
    }
  }

  pick(text: Text): string {
    return text[this.lang] || text.en || text.zh;
  }
}

export const i18n = new I18n();
