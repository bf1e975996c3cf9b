import { memo, useState } from 'react';
import { DownOutlined, ReloadOutlined, SettingOutlined, UpOutlined } from '@ant-design/icons';
import { Button, Card, Dropdown, Flex, Grid, Skeleton } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useTranslation } from 'react-i18next';
import { ErrorNotice } from '../../../components/ErrorNotice';
import { useChosenProject } from '../../../data/accounts/project';
import { quotasQuery } from '../../../data/sessions/quotas';
import { useStored } from '../../../data/stored';
import { GroupSelect, ResourceBars, UsedFreeSwitch } from '../../dashboard/ResourceBars';
import { amountsOf, panelChoice, PANELS } from '../../dashboard/resources';
import { onMenuKeyDown } from '../../../components/menuKeys';

interface ResourcePanelProps {
  /** The resource group; undefined means the default group of a new session. */
  group: string | undefined;
  onGroup: (group: string) => void;
}

/**
 * A card to create a session, and a card with the used or free resources in the chosen view. On a
 * phone, only a button and the title of the second card, so that the list is on the first screen.
 */
export const ResourcePanel = memo(function ResourcePanel({ group, onGroup }: ResourcePanelProps) {
  const { t } = useTranslation();
  const project = useChosenProject();
  const { panel, isFree } = useStored(panelChoice);
  const quotas = useQuery(
    quotasQuery({ ...(project ? { project: project.name } : {}), ...(group ? { group } : {}) })
  );
  const isNarrow = Grid.useBreakpoint().sm === false;
  const [isOpen, setIsOpen] = useState(false);
  const title = t(`dashboard.panel-${panel}`);
  const change = (changes: object) => panelChoice.set({ ...panelChoice.get(), ...changes });
  return (
    <div className="bai-session-cards">
      {isNarrow ? (
        <Link to="/launch">
          <Button type="primary">{t('sessions.create')}</Button>
        </Link>
      ) : (
        <Card size="small" title={<h2 className="bai-card-title">{t('sessions.create')}</h2>}>
          <p style={{ marginTop: 0 }}>{t('sessions.create-help')}</p>
          <Link to="/launch">
            <Button type="primary">{t('sessions.create')}</Button>
          </Link>
        </Card>
      )}
      <Card
        size="small"
        role="region"
        aria-label={title}
        className={isNarrow && !isOpen ? 'bai-closed-card' : ''}
        title={<h2 className="bai-card-title">{title}</h2>}
        extra={
          <Flex wrap gap={4} align="center">
            {panel !== 'limits' && <GroupSelect quotas={quotas.data} onChange={onGroup} />}
            <UsedFreeSwitch isFree={isFree} onChange={value => change({ isFree: value })} />
            <Button
              type="text"
              size="small"
              icon={<ReloadOutlined spin={quotas.isFetching} />}
              onClick={() => void quotas.refetch()}
              aria-label={t('dashboard.refresh', { title })}
            />
            <Dropdown
              autoFocus
              trigger={['click']}
              menu={{
                onKeyDown: onMenuKeyDown,
                selectable: true,
                selectedKeys: [panel],
                items: PANELS.map(key => ({ key, label: t(`dashboard.panel-${key}`) })),
                onClick: ({ key }) => change({ panel: key })
              }}
            >
              <Button
                type="text"
                size="small"
                icon={<SettingOutlined />}
                aria-label={t('dashboard.choose-panel')}
              />
            </Dropdown>
            {isNarrow && (
              <Button
                type="text"
                size="small"
                icon={isOpen ? <UpOutlined /> : <DownOutlined />}
                aria-expanded={isOpen}
                aria-label={t('sessions.show-resources', { title })}
                onClick={() => setIsOpen(!isOpen)}
              />
            )}
          </Flex>
        }
      >
        {quotas.error && <ErrorNotice error={quotas.error} onRetry={() => void quotas.refetch()} />}
        {quotas.isPending && <Skeleton active paragraph={{ rows: 1 }} title={false} />}
        {quotas.data && <ResourceBars amounts={amountsOf(quotas.data, panel)} isFree={isFree} />}
      </Card>
    </div>
  );
});
