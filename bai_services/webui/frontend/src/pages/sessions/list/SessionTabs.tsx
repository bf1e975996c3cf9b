import { memo } from 'react';
import { Tabs } from 'antd';
import { useQueries } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { countText } from '../../../components/list/listSearch';
import { sessionCountQuery } from '../../../data/sessions/sessions';
import { filtersOf, TABS, type SessionsSearch, type Tab } from '../search';

interface SessionTabsProps {
  active: Tab;
  name: string | undefined;
  filters: Record<string, string>;
  /** Name of the chosen project; undefined: all projects. */
  project: string | undefined;
  onChange: (changes: SessionsSearch) => void;
}

/** The tabs of the list with the numbers of sessions that match the other filters. */
export const SessionTabs = memo(function SessionTabs(props: SessionTabsProps) {
  const { name, filters, project, onChange } = props;
  const { t } = useTranslation();
  const counts = useQueries({
    queries: TABS.map(tab =>
      sessionCountQuery({
        ...(project === undefined ? {} : { project }),
        ...filtersOf({ ...(name === undefined ? {} : { name }), filters, tab })
      })
    )
  });
  return (
    <Tabs
      activeKey={props.active}
      onChange={tab => onChange({ tab: tab as Tab, page: 1 })}
      items={TABS.map((key, index) => {
        const tab = t(`sessions.tab-${key}`);
        const count = counts[index]?.data;
        const label =
          count === undefined ? tab : t('data.tab-count', { tab, count: countText(count) });
        return { key, label };
      })}
    />
  );
});
