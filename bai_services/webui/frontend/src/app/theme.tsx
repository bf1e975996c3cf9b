import { createContext, useContext, useEffect, useMemo, useState, type ReactNode } from 'react';
import { generate } from '@ant-design/colors';
import { SearchOutlined } from '@ant-design/icons';
import { ConfigProvider, theme, type ThemeConfig } from 'antd';
import english from 'antd/es/locale/en_US';
import { useTranslation } from 'react-i18next';
import type { FormConfig } from 'antd/es/config-provider/context';
import type { Locale } from 'antd/es/locale';
import { config } from '../config';

export type ThemeMode = 'light' | 'dark' | 'system';
const STORAGE_KEY = 'bai-theme';
const HUB_STORAGE_KEY = 'jupyterhub-bs-theme';
const HAS_MOTION = !window.matchMedia('(prefers-reduced-motion: reduce)').matches;
const SYSTEM_DARK = window.matchMedia('(prefers-color-scheme: dark)');

// Some AntD components, such as the pager, contain texts. AntD itself contains the English ones.
const LOCALES: Record<string, () => Promise<{ default: Locale }>> = {
  ko: () => import('antd/es/locale/ko_KR'),
  ja: () => import('antd/es/locale/ja_JP'),
  th: () => import('antd/es/locale/th_TH')
};

const SCROLL_TO_ERROR: FormConfig = { scrollToFirstError: { focus: true, block: 'center' } };

/** The next darker shade of the palette that AntD derives from a color. */
const darker = (color: string) => generate(color)[6] ?? color;

// AntD's own colors of links and secondary text have less contrast than WCAG 2.1 AA requires.
const LIGHT: ThemeConfig = {
  algorithm: theme.defaultAlgorithm,
  token: {
    motion: HAS_MOTION,
    colorPrimary: config.brandColor,
    colorError: '#cf1322',
    colorLink: config.brandColor,
    colorLinkHover: darker(config.brandColor),
    colorTextTertiary: 'rgba(0, 0, 0, 0.65)',
    colorTextPlaceholder: 'rgba(0, 0, 0, 0.6)'
  }
};
const DARK_LINK = '#69b1ff';
const DARK: ThemeConfig = {
  algorithm: theme.darkAlgorithm,
  token: {
    motion: HAS_MOTION,
    colorError: '#ff7875',
    colorLink: DARK_LINK,
    colorLinkHover: '#91caff',
    colorTextTertiary: 'rgba(255, 255, 255, 0.7)',
    colorTextPlaceholder: 'rgba(255, 255, 255, 0.6)'
  },
  components: {
    Menu: { itemSelectedColor: '#91caff', subMenuItemSelectedColor: '#91caff' },
    // This color has enough contrast for both of its uses: as a text color on the background, and
    // behind the white dot of a selected radio button.
    Radio: { colorPrimary: '#4096ff', colorPrimaryHover: '#4096ff', colorPrimaryActive: '#4096ff' },
    Tabs: { itemSelectedColor: DARK_LINK, itemHoverColor: DARK_LINK }
  }
};

interface ThemeChoice {
  mode: ThemeMode;
  isDark: boolean;
  choose: (mode: ThemeMode) => void;
}

const ThemeContext = createContext<ThemeChoice>({
  mode: 'system',
  isDark: false,
  choose: () => undefined
});

export const useThemeMode = () => useContext(ThemeContext);

/**
 * Stores the theme for the Hub's own pages. They have no value `system`: without a stored value
 * they follow the system.
 */
function storeForHub(mode: ThemeMode) {
  if (mode === 'system') {
    localStorage.removeItem(HUB_STORAGE_KEY);
  } else {
    localStorage.setItem(HUB_STORAGE_KEY, mode);
  }
}

function storedMode(): ThemeMode {
  const stored = localStorage.getItem(STORAGE_KEY);
  return stored === 'light' || stored === 'dark' ? stored : 'system';
}

/** Provides the colors, and the language of AntD's own texts, to its children. */
export function Themed({ children }: { children: ReactNode }) {
  const [mode, setMode] = useState(storedMode);
  const [systemIsDark, setSystemIsDark] = useState(SYSTEM_DARK.matches);
  // Must not be undefined: AntD would remount the whole page.
  const [locale, setLocale] = useState<Locale>(english);
  const { t, i18n } = useTranslation();

  useEffect(() => {
    const update = () => setSystemIsDark(SYSTEM_DARK.matches);
    SYSTEM_DARK.addEventListener('change', update);
    return () => SYSTEM_DARK.removeEventListener('change', update);
  }, []);

  useEffect(() => {
    let isCurrent = true;
    const load = LOCALES[i18n.language] ?? (() => Promise.resolve({ default: english }));
    void load().then(loaded => isCurrent && setLocale(loaded.default));
    return () => void (isCurrent = false);
  }, [i18n.language]);

  const isDark = mode === 'dark' || (mode === 'system' && systemIsDark);
  useEffect(() => {
    document.documentElement.style.colorScheme = isDark ? 'dark' : 'light';
    document.documentElement.dataset['theme'] = isDark ? 'dark' : 'light';
  }, [isDark]);

  const choice = useMemo(
    () => ({
      mode,
      isDark,
      choose: (chosen: ThemeMode) => {
        localStorage.setItem(STORAGE_KEY, chosen);
        storeForHub(chosen);
        setMode(chosen);
      }
    }),
    [mode, isDark]
  );
  return (
    <ThemeContext value={choice}>
      <ConfigProvider
        theme={{ ...(isDark ? DARK : LIGHT), cssVar: {}, hashed: false }}
        // AntD would write a space between the characters of a button with two Japanese characters.
        button={{ autoInsertSpace: false }}
        // An invalid field can be outside of the visible part of a form.
        form={SCROLL_TO_ERROR}
        inputSearch={{ searchIcon: <SearchOutlined aria-label={t('palette.open')} /> }}
        locale={locale}
      >
        {children}
      </ConfigProvider>
    </ThemeContext>
  );
}
