import { useState } from 'react';
import { App, Button, Flex, Input, List, Typography } from 'antd';
import { useQuery } from '@tanstack/react-query';
import { useTranslation } from 'react-i18next';
import { personal } from '../../components/personal';
import { PagedList, rangeOf } from '../../components/list/PagedList';
import { membersQuery, useChangeMember } from '../../data/entities';
import { meQuery } from '../../data/accounts/me';
import { PROJECTS } from './projects';
import { UserText } from '../../components/UserText';

/** The members of a project, page by page; administrators add and remove them. */
export function Members({ project }: { project: string }) {
  const { t } = useTranslation();
  const { message } = App.useApp();
  const { data: me } = useQuery(meQuery);
  const [find, setFind] = useState('');
  const [page, setPage] = useState(1);
  const members = useQuery(membersQuery(project, find, rangeOf(page)));
  const change = useChangeMember(project);
  const [name, setName] = useState('');
  const isWriter = PROJECTS.writers.some(role => role === me?.role);
  const set = (user: string, isMember: boolean) =>
    change.mutate(
      { user, isMember },
      {
        onSuccess: () => setName(''),
        onError: error => void message.error(error.message)
      }
    );
  return (
    <section aria-label={t('projects.members')}>
      <Typography.Title level={5}>{t('projects.members')}</Typography.Title>
      {isWriter && (
        <Flex gap="small">
          <Input
            value={name}
            onChange={event => setName(event.target.value)}
            onPressEnter={() => name && set(name, true)}
            placeholder={t('projects.member-name')}
            aria-label={t('projects.member-name')}
          />
          <Button disabled={!name} loading={change.isPending} onClick={() => set(name, true)}>
            {t('projects.add-member')}
          </Button>
        </Flex>
      )}
      <Input.Search
        allowClear
        placeholder={t('projects.find-member')}
        aria-label={t('projects.find-member')}
        onSearch={text => {
          setFind(text.trim());
          setPage(1);
        }}
        style={{ marginTop: 8 }}
      />
      <PagedList
        query={members}
        page={page}
        onPage={setPage}
        renderItem={member => (
          <List.Item
            actions={
              isWriter
                ? [
                    <Button
                      key="remove"
                      size="small"
                      aria-label={t('projects.remove-member', { name: member.username })}
                      onClick={() => set(member.username, false)}
                    >
                      {t('projects.remove')}
                    </Button>
                  ]
                : []
            }
          >
            {member.username} {member.full_name && '· '}
            <UserText text={personal(member.full_name)} />
          </List.Item>
        )}
      />
    </section>
  );
}
