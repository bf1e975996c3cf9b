import { ClockCircleOutlined, HistoryOutlined, StopOutlined } from '@ant-design/icons';
import type { ReactNode } from 'react';
import { Button, Dropdown, Flex, Tooltip, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { shortAmount } from '../../components/amount';
import { templatesQuery } from '../../data/sessions/launch';
import { meQuery } from '../../data/accounts/me';
import { sessionsQuery } from '../../data/sessions/sessions';
import { formOf, requestOfSession, type LaunchForm } from './form';
import { useLauncher } from './launcherContext';
import { presetState } from './presets';
import { onMenuKeyDown } from '../../components/menuKeys';

const RECENT = 5;
// Signs of presets that cannot start now.
const SIGNS = {
  waits: <ClockCircleOutlined />,
  'over-limit': <StopOutlined />,
  'too-large': <StopOutlined />
} as const;

interface SourceProps {
  onChoose: (form: LaunchForm) => void;
}

/** The caller's last sessions, as a menu; each fills in the whole form. */
export function RecentSessions({ onChoose }: SourceProps) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const recent = useQuery({
    ...sessionsQuery({
      limit: RECENT,
      offset: 0,
      sort: '-created_at',
      filters: me ? { owner: me.username } : {}
    }),
    enabled: me !== undefined
  });
  const sessions = recent.data?.items ?? [];
  return (
    <Dropdown
      autoFocus
      trigger={['click']}
      disabled={sessions.length === 0}
      menu={{
        onKeyDown: onMenuKeyDown,
        items: sessions.map(session => ({
          key: session.id,
          label: session.name,
          onClick: () => onChoose(formOf(requestOfSession(session)))
        }))
      }}
    >
      <Button type="link" icon={<HistoryOutlined />}>
        {t('launcher.recent')}
      </Button>
    </Dropdown>
  );
}

/** Templates, which fill in the whole form, and presets, which fill in the amounts. */
export function Sources({ onChoose }: SourceProps) {
  const { t } = useTranslation();
  const { form, change, options } = useLauncher();
  const { data: templates = [] } = useQuery(templatesQuery);
  const presets = (options?.presets ?? []).map(preset => {
    const state = presetState(preset, options?.limits ?? {});
    return { ...preset, state, note: state === 'now' ? '' : t(`launcher.preset-${state}`) };
  });
  const states = ['waits', 'over-limit', 'too-large'] as const;
  return (
    <>
      {templates.length > 0 && (
        <Row title={t('launcher.templates')}>
          {templates.map(({ id, name, request }) => (
            <Button key={id} size="small" onClick={() => onChoose(formOf(request))}>
              {name}
            </Button>
          ))}
        </Row>
      )}
      {presets.length > 0 && (
        <Row title={t('launcher.presets')}>
          {presets.map(({ name, resources, state, note }) => (
            <Tooltip
              key={name}
              title={Object.entries(resources)
                .map(([slot, amount]) => `${slot} ${shortAmount(slot, amount)}`)
                .concat(note || [])
                .join(', ')}
            >
              <Button
                size="small"
                icon={state !== 'now' && SIGNS[state]}
                aria-label={note ? `${name} (${note})` : name}
                type={form.preset === name ? 'primary' : 'default'}
                aria-pressed={form.preset === name}
                onClick={() => change({ preset: name, resources: {} })}
              >
                {name}
              </Button>
            </Tooltip>
          ))}
          {states
            .filter(state => presets.some(preset => preset.state === state))
            .map(state => (
              <Typography.Text key={state} type="secondary">
                {SIGNS[state]} {t(`launcher.preset-${state}`)}
              </Typography.Text>
            ))}
        </Row>
      )}
    </>
  );
}

function Row({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Flex wrap gap="small" align="center" style={{ marginBottom: 12 }}>
      <Typography.Text type="secondary">{title}</Typography.Text>
      {children}
    </Flex>
  );
}
