import { useState, type ReactNode } from 'react';
import {
  App,
  Button,
  Card,
  Checkbox,
  Flex,
  Input,
  InputNumber,
  Select,
  Switch,
  Typography
} from 'antd';
import { useTranslation } from 'react-i18next';
import { THEME_MODES } from '../../app/AccountMenu';
import { useThemeMode } from '../../app/theme';
import { chooseLanguage, LANGUAGES, languageOf, type Language } from '../../i18n';
import {
  changePreferences,
  DEFAULTS,
  MAX_UPLOADS,
  MIN_UPLOADS,
  START_PAGES,
  usePreferences,
  type Preferences as Values
} from '../../data/accounts/preferences';

interface Setting {
  key: string;
  isChanged: boolean;
  reset: () => void;
  control: ReactNode;
}

const browserLanguage = () => languageOf(navigator.language.split('-')[0] ?? 'en');

function useSettings(): Setting[] {
  const { t, i18n } = useTranslation();
  const { message } = App.useApp();
  const { mode, choose } = useThemeMode();
  const values = usePreferences();
  const of = (key: keyof Values) => ({
    isChanged: values[key] !== DEFAULTS[key],
    reset: () => changePreferences({ [key]: DEFAULTS[key] })
  });
  const chooseDesktopNotices = async (isOn: boolean) => {
    if (isOn && (!('Notification' in window) || !(await isPermitted()))) {
      void message.warning(t('settings.notices-denied'));
      return;
    }
    changePreferences({ hasDesktopNotices: isOn });
  };
  return [
    {
      key: 'language',
      isChanged: i18n.language !== browserLanguage(),
      reset: () => void chooseLanguage(browserLanguage()),
      control: (
        <Select
          showSearch={{ optionFilterProp: 'label' }}
          value={languageOf(i18n.language)}
          onChange={(language: Language) => void chooseLanguage(language)}
          aria-label={t('settings.language')}
          options={Object.entries(LANGUAGES).map(([value, name]) => ({
            value,
            label: value === browserLanguage() ? t('settings.of-browser', { name }) : name
          }))}
        />
      )
    },
    {
      key: 'theme',
      isChanged: mode !== 'system',
      reset: () => choose('system'),
      control: (
        <Select
          value={mode}
          onChange={choose}
          aria-label={t('settings.theme')}
          options={THEME_MODES.map(value => ({ value, label: t(`shell.theme-${value}`) }))}
        />
      )
    },
    {
      key: 'start-page',
      ...of('startPage'),
      control: (
        <Select
          value={values.startPage}
          onChange={startPage => changePreferences({ startPage })}
          aria-label={t('settings.start-page')}
          options={START_PAGES.map(value => ({ value, label: t(`pages.${value.slice(1)}`) }))}
        />
      )
    },
    {
      key: 'sidebar',
      ...of('isSidebarCompact'),
      control: (
        <Switch
          checked={values.isSidebarCompact}
          onChange={isSidebarCompact => changePreferences({ isSidebarCompact })}
          aria-label={t('settings.sidebar')}
        />
      )
    },
    {
      key: 'desktop-notices',
      ...of('hasDesktopNotices'),
      control: (
        <Switch
          checked={values.hasDesktopNotices}
          onChange={isOn => void chooseDesktopNotices(isOn)}
          aria-label={t('settings.desktop-notices')}
        />
      )
    },
    {
      key: 'uploads',
      ...of('parallelUploads'),
      control: (
        <InputNumber
          min={MIN_UPLOADS}
          max={MAX_UPLOADS}
          precision={0}
          value={values.parallelUploads}
          onChange={count => changePreferences({ parallelUploads: count ?? MIN_UPLOADS })}
          aria-label={t('settings.uploads')}
        />
      )
    }
  ];
}

const isPermitted = async () => (await Notification.requestPermission()) === 'granted';

interface PreferencesProps {
  find: string;
  onFind: (text: string) => void;
}

/** Preferences in this browser; each change takes effect at once. */
export function Preferences({ find, onFind }: PreferencesProps) {
  const { t } = useTranslation();
  const { modal } = App.useApp();
  const [isChangedOnly, setIsChangedOnly] = useState(false);
  const settings = useSettings();
  const changed = settings.filter(({ isChanged }) => isChanged);
  const matches = ({ key }: Setting) =>
    `${t(`settings.${key}`)} ${t(`settings.${key}-help`)}`
      .toLowerCase()
      .includes(find.toLowerCase());
  const resetAll = () =>
    modal.confirm({
      title: t('settings.reset-all'),
      content: changed.map(({ key }) => t(`settings.${key}`)).join(', '),
      okText: t('settings.reset'),
      onOk: () => changed.forEach(({ reset }) => reset())
    });
  return (
    <>
      <Flex wrap gap="middle" align="center" style={{ marginBottom: 12 }}>
        <Input.Search
          allowClear
          value={find}
          onChange={event => onFind(event.target.value)}
          placeholder={t('settings.find')}
          aria-label={t('settings.find')}
          style={{ maxWidth: 260 }}
        />
        <Checkbox
          checked={isChangedOnly}
          onChange={event => setIsChangedOnly(event.target.checked)}
        >
          {t('settings.changed-only')}
        </Checkbox>
        <Button disabled={changed.length === 0} onClick={() => void resetAll()}>
          {t('settings.reset-all')}
        </Button>
      </Flex>
      {(isChangedOnly ? changed : settings).filter(matches).map(setting => (
        <Card key={setting.key} size="small" style={{ marginBottom: 8, maxWidth: 760 }}>
          <Flex wrap gap="small" align="center">
            <div style={{ flex: '1 1 240px' }}>
              <Typography.Text strong>{t(`settings.${setting.key}`)}</Typography.Text>
              <div>
                <Typography.Text type="secondary">
                  {t(`settings.${setting.key}-help`)}
                </Typography.Text>
              </div>
            </div>
            {setting.isChanged && (
              <Button
                size="small"
                type="link"
                onClick={setting.reset}
                aria-label={t('settings.reset-one', { name: t(`settings.${setting.key}`) })}
              >
                {t('settings.reset')}
              </Button>
            )}
            {setting.control}
          </Flex>
        </Card>
      ))}
    </>
  );
}
