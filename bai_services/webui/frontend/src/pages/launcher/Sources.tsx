import { Button, Flex, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { templatesQuery } from '../../data/launch';
import { meQuery } from '../../data/me';
import { sessionsQuery } from '../../data/sessions';
import { formOf, requestOfSession, type LaunchForm } from './form';

const RECENT = 5;

/** Templates and the caller's last sessions, which fill in the whole form. */
export function Sources({ onChoose }: { onChoose: (form: LaunchForm) => void }) {
  const { t } = useTranslation();
  const { data: me } = useQuery(meQuery);
  const templates = useQuery(templatesQuery);
  const recent = useQuery({
    ...sessionsQuery({
      limit: RECENT,
      offset: 0,
      sort: '-created_at',
      filters: me ? { owner: me.username } : {}
    }),
    enabled: me !== undefined
  });
  const sources = [
    {
      key: 'templates',
      items: (templates.data?.items ?? []).map(({ id, name, request }) => ({
        id,
        name,
        form: formOf(request)
      }))
    },
    {
      key: 'recent',
      items: (recent.data?.items ?? []).map(session => ({
        id: session.id,
        name: session.name,
        form: formOf(requestOfSession(session))
      }))
    }
  ];
  return sources
    .filter(({ items }) => items.length > 0)
    .map(({ key, items }) => (
      <Flex key={key} wrap gap="small" align="center" style={{ marginBottom: 12 }}>
        <Typography.Text type="secondary">{t(`launcher.${key}`)}</Typography.Text>
        {items.map(({ id, name, form }) => (
          <Button key={id} size="small" onClick={() => onChoose(form)}>
            {name}
          </Button>
        ))}
      </Flex>
    ));
}
